"""What people can do in Slack: one module per feature, each with its listeners."""
