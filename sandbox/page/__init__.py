"""The sandbox in a browser: a page on which people use the bot as they would in Slack."""
