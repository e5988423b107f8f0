"""A Slack bot that makes replica videos and tells the thread when they are done."""
