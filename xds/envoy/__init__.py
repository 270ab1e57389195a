"""What the server writes for Envoy, or asks it: bootstraps, converted files and dumps, checks by a real Envoy, v2."""
