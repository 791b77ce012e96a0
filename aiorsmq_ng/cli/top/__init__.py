"""``rsmqctl top``: a live view of all queues."""
