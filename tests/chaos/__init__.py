"""Kills the bot and breaks its calls by a seeded plan, then checks what the sandbox recorded."""
