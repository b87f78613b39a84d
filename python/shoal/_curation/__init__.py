"""What people do with the clusters of embeddings."""
