"""`python -m stepone.demo`: one small training three times, eagerly, through the service, and out of its cache."""
