"""What a process tells about its work: log lines without secrets, and spans where they are used."""
