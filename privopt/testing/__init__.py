"""What tests of privopt and of mechanisms made elsewhere may lean on."""
