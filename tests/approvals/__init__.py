"""Who must say yes, what a vote proves, and whose keys count."""
