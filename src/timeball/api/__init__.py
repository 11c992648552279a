"""HTTP faces. Health now; the API for jobs and runs is to come."""
