"""Programs that the daemon runs beside itself, and the promise that none outlives its use."""
