"""The crash matrix: kill anything at every point, run to rest, and let an outsider judge."""
