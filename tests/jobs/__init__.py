"""The trunk: states, records, the run of an action, and the service, in process on fakeredis."""
