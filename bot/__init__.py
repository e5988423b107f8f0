"""A Slack bot that makes replica videos and reports in the thread when they are done."""

__version__ = "0.1.0"
