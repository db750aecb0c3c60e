"""The watcher watched: whether passes run, whether anything is heard, how much of what runs is truly seen."""
