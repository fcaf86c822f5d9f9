"""The outside view of a training: launches it, looks at its processes and at the machine, records both."""
