"""What the estimators share: the run loop, centers, `partial_fit`, results, saved models."""
