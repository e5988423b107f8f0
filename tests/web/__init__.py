"""The bot's HTTP server: requests, callbacks, health and metrics."""
