"""What people see and press in Slack: one module per feature, and what they share."""
