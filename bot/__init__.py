"""A Slack bot that makes replica videos and reports in the thread when they are done."""

__version__ = "1.0.0"
