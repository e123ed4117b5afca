"""What GPUs' schedules do differently: how loops are dealt to workgroups and threads."""
