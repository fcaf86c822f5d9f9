"""Programs that the bench starts in front of a training script; nothing else here, so that no module is hidden."""
