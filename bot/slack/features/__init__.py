"""What people can do in Slack: one module per feature, each with its listeners.

``bot.app`` lists those of the kinds of jobs, ``bot.slack.app`` the others.
"""
