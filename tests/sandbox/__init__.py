"""The sandbox: its Slack, its video service and its page."""
