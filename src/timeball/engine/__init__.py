"""One instance at work: membership, lease, planning, claims, starts, settling, reaping. Each part has a step."""
