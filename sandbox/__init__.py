"""A Slack and a video service on this machine, to try the bot and to test it against."""
