"""What an office files about a release: texts filled in from what was checked, each with the claim it rests on."""
