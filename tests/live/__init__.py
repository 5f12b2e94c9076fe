"""The way from a failure to the pager, with every process real."""
