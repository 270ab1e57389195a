"""Traffic assignment: from measured load and capacity to the locality weights and priorities of proxies."""
