"""What tests of fa4cpp use: `fa4cpp.testing.peer` is a plugin of pytest that runs other projects' suites over it."""
