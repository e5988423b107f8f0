"""Kills the bot and breaks its calls by a seeded plan, then judges it by what the outside saw."""
