"""What people see in Slack: pure functions that return blocks."""
