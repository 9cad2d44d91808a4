// Before anything is painted: the theme that was chosen last, so that the page does not flash in the other one.
try {
  const theme = localStorage.getItem("catchline-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // storage is switched off: the system's theme
}
