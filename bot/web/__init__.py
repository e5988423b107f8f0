"""The bot's own HTTP server: Slack's requests, callbacks, health and metrics."""
