"""Requests over HTTP: addresses checked as they are connected to, responses bounded. Needs the extra `http`."""
