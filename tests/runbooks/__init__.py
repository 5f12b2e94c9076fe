"""The runbooks: each alert has one, and what they tell to type works and prints what they show."""
