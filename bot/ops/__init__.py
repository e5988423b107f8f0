"""What the person who runs the bot does with it from the command line, beside serving."""
