"""``python -m privopt_photo_censor``: see :mod:`privopt_photo_censor.command`."""

from privopt_photo_censor.command import main

main()
