"""The video service: its client, what failed, and when it is not called."""
