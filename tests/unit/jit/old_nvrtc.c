/* An NVRTC of 11.8: every function is there, but neither C++20 nor sm_90a is known. */
int nvrtcVersion(int* major, int* minor) {
  *major = 11;
  *minor = 8;
  return 0;
}
int nvrtcGetNumSupportedArchs(void) { return 0; }
int nvrtcGetSupportedArchs(void) { return 0; }
int nvrtcGetErrorString(void) { return 0; }
int nvrtcCreateProgram(void) { return 0; }
int nvrtcDestroyProgram(void) { return 0; }
int nvrtcAddNameExpression(void) { return 0; }
int nvrtcCompileProgram(void) { return 0; }
int nvrtcGetLoweredName(void) { return 0; }
int nvrtcGetProgramLogSize(void) { return 0; }
int nvrtcGetProgramLog(void) { return 0; }
int nvrtcGetCUBINSize(void) { return 0; }
int nvrtcGetCUBIN(void) { return 0; }
int nvrtcGetPTXSize(void) { return 0; }
int nvrtcGetPTX(void) { return 0; }
