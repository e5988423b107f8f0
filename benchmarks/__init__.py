"""How fast the bot is, beside what it could be: each case runs it and its baselines in turn."""
