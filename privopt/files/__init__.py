"""Files read and made with care; `archive` reads arrays from files that anyone may have written."""
