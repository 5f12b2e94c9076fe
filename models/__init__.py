"""Models of the protocol for Spin, and what must come out when they are checked. Not shipped."""
