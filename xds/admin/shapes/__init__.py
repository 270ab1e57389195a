"""The JSON shapes of the admin API's answers and requests."""
