"""The messages and files that the bot owes: posted, edited and found again."""
