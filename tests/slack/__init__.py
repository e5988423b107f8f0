"""What is sent to Slack, and what becomes of it."""
