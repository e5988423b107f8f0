"""What people do in Slack, from the command to the answer."""
