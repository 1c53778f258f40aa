"""Documents that an office files about a release, each sentence with the claim it rests on."""
