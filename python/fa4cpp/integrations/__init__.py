"""fa4cpp in other frameworks: `import fa4cpp.integrations.transformers`."""
