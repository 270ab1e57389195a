"""Traffic assignment: locality weights and priorities, decided from demand, capacity and health. Pure."""
