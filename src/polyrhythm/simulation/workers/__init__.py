"""Who computes visits: this process, threads, worker processes, or a Ray cluster."""
